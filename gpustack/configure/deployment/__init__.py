"""One module for each kind of deployment: the settings of the services in the files that it reads."""
