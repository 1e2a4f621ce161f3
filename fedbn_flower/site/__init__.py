"""All code that runs next to a site's data, in one place to audit: it imports nothing from the server."""
