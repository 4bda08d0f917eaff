"""What a host must be: which functions are passed through, on which driver, with which kernel arguments."""
