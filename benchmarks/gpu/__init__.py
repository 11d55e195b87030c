"""What copies cost on hardware: the scripts behind the copy model, the fixes and the pictures in the documentation.

`run_all.sh` measures everything on one card; the JSON files beside it say which card, driver and PyTorch they are from.
"""
