"""What is predicted: which of two classes is the event, and doubts about targets."""
