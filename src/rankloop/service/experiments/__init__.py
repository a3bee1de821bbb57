"""Two rankings on live traffic: who takes part, what lists are mixed with, what the clicks then say."""
