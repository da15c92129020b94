"""Questions asked of a file: many texts, in shards, here or on a cluster; and the tables that come of them."""
