"""The plots of plot.py. Each kind is a class: select() says what is in a picture, draw() draws it. Only the latter needs matplotlib, so that
a picture that is out of date is known without it."""
