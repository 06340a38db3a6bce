"""Plans that are played: once, by hand, in campaigns; shrunk, and told."""
