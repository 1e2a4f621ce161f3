"""The files from which a run resumes: one of the server, and one per client."""
