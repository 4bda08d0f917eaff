"""Why Nova refuses: the steps of a request, by host, with fixes."""
