"""Models from and for other libraries: pure conversion of names and tensors.

names.py maps the tensors of a library's file to those of the encoder. reading.py reads files of
tensors without running code in them; checkpoint.py makes a vector of a fine-tuned model, adapter.py
of a PEFT adapter and vector_file.py of a vector's own file; writing.py writes a model that the
library loads by itself. hub.py downloads such files from a Hugging Face hub and uploads them.
"""
