"""One module for each kind of deployment: the files that it reads, from the settings of the services."""
