"""The page Score: which sentence is likelier."""
