"""Export of a trained net as a folder that needs no alternas to run."""
