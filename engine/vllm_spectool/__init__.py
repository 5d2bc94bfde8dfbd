"""A tool cache inside a stock vLLM, and a reference engine with the same API.

vLLM imports this package in every process it starts, so importing it does nothing: no other
package is loaded, nothing is printed, nothing is patched.
"""

__version__ = "0.1.0"
