"""What is refused or warned of before the first round."""
