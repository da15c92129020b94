"""The page Words on images: where it looks for each word."""
