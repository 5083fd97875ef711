"""Controllers that plan with a model of the robot, and networks that imitate them."""
