"""What a program outside of headrace can add to it, with the public interface alone; CONTRIBUTING.md shows each."""
