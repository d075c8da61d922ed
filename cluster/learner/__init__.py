"""The work of runs: digests of blobs in, digests of blobs out."""
