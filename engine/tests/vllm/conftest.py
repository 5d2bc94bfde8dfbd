"""The tests against a real vLLM run only where there is one: `engine/test_vllm.sh` sees to it.

`SPECTOOL_VLLM` names the folder that `engine/set_up_vllm.sh` made.
"""

import os

collect_ignore_glob = [] if os.environ.get("SPECTOOL_VLLM") else ["live*"]
