"""Serves a training folder to a browser on this machine, whose page trains it by stock onnxruntime-web."""
