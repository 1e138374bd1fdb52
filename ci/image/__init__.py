"""What ``ci/Dockerfile`` runs: vLLM's own image, with vllm_av in it and the series applied.

``python3 -m ci.image --target gpu --base REFERENCE --wheels FOLDER`` does all of it, and with
``--root FOLDER`` to any folder that is laid out as the image is: that is how it is tested, since
an image is built only where there is an engine. Rule: nothing here asks a network, and nothing but
the standard library is imported before the wheel is in its place.
"""
