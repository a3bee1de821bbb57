"""Features that are computed where lists are ranked: what is known of items and users, and what is made of it."""
