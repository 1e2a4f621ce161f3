"""What carries messages to clients: in this process, in Ray's, by Flower; and the ClientApp that answers."""
