"""The page: every question on one screen of a browser, from this machine, without the internet."""
