"""Statistics instead of samples: the penalty E |J(x) tau|^2 from second moments that a task shares.

Source: TAK, arXiv 2602.17385. With G = E[J'J] the penalty is tau' G tau. G is taken block-diagonal
over layers, and for a linear layer, or a convolution without groups, as the product of

    A = E[a a']   of the layer's inputs a (over rows and positions; with a 1 for the bias),
    B = E[g g']   of the gradients g at its outputs, backpropagated from random v ~ N(0, I) on the
                  features (over rows, summed over positions),

so that the penalty of the layer is tr(B dW A dW'). Every other block (norms, depthwise
convolutions, what no module of its own uses) has the diagonal of G, exact up to the noise of v.
All tasks merge into one pair of factors per layer, so that a step costs the same however many
there are.

This leaves out products between layers and between positions, which are most of the penalty, since
layers pull the same way. The ratio of their joint effect to that of the layers one by one is
measured with the statistics (`coherence`, 24 and 63 for two tasks on MiniLM) and multiplies the
penalty; vectors then do 3 to 30 times less to other tasks than without a penalty. What remains of
their effects pulls the same way too, and adds up in their sum. Sampling those products by a few
directions through all layers comes closer to E |J tau|^2 of a given tau, but a tau trained so
evades the directions.

Statistics still reveal something of the samples: A of the first trained layer is the second moment
of embeddings, from which frequent words or mean pictures may be guessed; if rows are few, the rows
themselves. They reveal less than samples, not nothing.
"""

from tacl.curvature.measuring import measure
from tacl.curvature.statistics import KroneckerFactors, Statistics, merged

__all__ = ["KroneckerFactors", "Statistics", "measure", "merged"]
