"""Every command that the pages print, run."""
