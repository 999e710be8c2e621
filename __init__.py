"""alternas: architecture search over ResNets, AlterNets and ResNet+ViT hybrids."""

__version__ = "0.1.0"
