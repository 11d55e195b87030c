"""Measurements that the documentation and some constants rest on."""
