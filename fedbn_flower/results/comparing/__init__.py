"""What several runs come to together: which is best, who gains by it, and what their privacy adds up to."""
