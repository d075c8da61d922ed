"""What is durable and what is remote: coordinator, registry, blobs, samples, learners, client."""
