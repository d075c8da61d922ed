"""Makes a composition that is more than a sum: vectors are merged, or coefficients learned."""
