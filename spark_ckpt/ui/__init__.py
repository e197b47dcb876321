"""The page of ``spark-ckpt ui`` and the file of ``spark-ckpt report``. Needs the extra ``ui``; it only reads."""
