"""CompositionMethod a composition that is more than a sum."""
