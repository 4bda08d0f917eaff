#!/bin/sh
# Packages start no services in a root with this file (invoke-rc.d(8)).
exit 101
