"""Models that come from other libraries and go back to them: names and tensors, pure conversion.

names.py says which tensor of a library's file is which of the encoder's. reading.py reads files of
tensors without running them, checkpoint.py makes a vector of a fine-tuned model, adapter.py of a
PEFT adapter and vector_file.py of a vector's own file; writing.py writes a model that the library
loads by itself. hub.py fetches such files from a Hugging Face hub, and puts them there.
"""
