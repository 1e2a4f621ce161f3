"""All that runs at a site beside its data, one room to audit: it imports nothing of the server."""
