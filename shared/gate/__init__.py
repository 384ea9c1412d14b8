"""May it leave? The stages that decide it, wherever they are asked."""
