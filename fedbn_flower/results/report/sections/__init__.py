"""What a page of the report has on single subjects, a module each."""
