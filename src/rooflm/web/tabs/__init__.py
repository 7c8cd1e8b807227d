"""The tabs of the page, a module each: from what is asked to an answer."""
