"""What reaches the nodes: their names, ways and keys, the agent sent to them, and the picture of them all."""

import warnings

# asyncssh names the types of DSA keys as it is imported; from cryptography 51 on each is a warning on the operator's terminal.
warnings.filterwarnings("ignore", "DSA is deprecated", UserWarning, module="asyncssh")
