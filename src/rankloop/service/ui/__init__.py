"""What people see in a browser: the status page and the API to browse. Files and text; nothing of the service."""
