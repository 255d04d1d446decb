"""The pictures of plot.py. Each module has select functions, which need Python alone and say what is in a picture, or a draw function,
which needs matplotlib. So that a picture is out of date can be seen without matplotlib."""
