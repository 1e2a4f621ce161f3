"""Small files as people have them, each with what a run says of it before anything is learnt."""
