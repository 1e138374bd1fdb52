"""``python -m vllm_av`` is ``vllm-av``."""

from vllm_av.cli.main import main

if __name__ == "__main__":
    main()
