"""What a service does with the words of other systems: `rankloop.adapters` reads them, the engine does the rest."""
