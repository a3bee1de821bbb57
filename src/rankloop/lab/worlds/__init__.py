"""Where queries and grades come from: worlds that stay, and worlds that change."""
