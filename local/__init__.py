"""A SageMaker on your machine, for jobs and endpoints of the kit's images.

opt_ml       what a container finds in /opt/ml, laid out as SageMaker does
job          a training job on one or many hosts          serving  an endpoint on a loopback port
checks       what a container would refuse, before it     endings  how the hosts ended
lent         this machine's CA and index, for pip         results  what a job left, without following its links
session      everything that one run starts, gone at its end; leftovers finds what a kill -9 left
demo         the kit's main job, from the embedded sample to an answer
"""
