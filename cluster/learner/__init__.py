"""The work: digests in, digests out."""
