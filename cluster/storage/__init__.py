"""Files: a directory or a bucket, blobs by sha256, checkpoints, the sample store."""
