"""What is done beside ranking and learning: closing windows, reports, deletion by age, archives, webhooks, upgrades."""
