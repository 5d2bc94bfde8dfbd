"""What all of the engine's tests share."""

from hypothesis import settings

# On a busy machine an example may take any time, and says nothing by it.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
