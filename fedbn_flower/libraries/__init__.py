"""Networks of other libraries."""
